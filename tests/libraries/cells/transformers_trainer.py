"""The Trainer of transformers, with a small model from a configuration instead of one from the hub of models."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
)
model = BertForSequenceClassification(config)


class Tokenized(Dataset):
    def __init__(self):
        self.ids, self.labels = torch.randint(50, (64, 12)), torch.randint(2, (64,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


training_args = TrainingArguments(
    output_dir="my_awesome_model",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    logging_strategy="epoch",
)
trainer = Trainer(model=model, args=training_args, train_dataset=Tokenized())
trainer.train()
print(f"trained on {training_args.world_size} processes")
